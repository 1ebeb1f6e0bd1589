"""Items and users by what people type: ids, beginnings of words, and words with typos."""
