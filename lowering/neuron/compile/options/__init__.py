"""Options of the compiler: read, merged by rule, and given by default."""
