"""The torture campaign: damaged and forged inputs, kills, full disks and hostile requests, in bulk."""
