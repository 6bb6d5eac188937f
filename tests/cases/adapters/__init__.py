"""One adapter for each group of cases: it turns a case's input into calls of the real product."""
