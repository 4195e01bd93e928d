//! The 32-bit floating point numbers of a percentage, as Go's `strconv.ParseFloat` reads them.
