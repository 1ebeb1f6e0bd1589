"""Lists: from a fitted model and a query to an answer, with rules, reasons and exports."""
