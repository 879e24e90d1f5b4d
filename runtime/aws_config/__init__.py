"""AWS's configurations: the table of attributes with their effects, strict readers, checks."""
