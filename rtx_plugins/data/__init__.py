"""Sources of records, one file format each."""
