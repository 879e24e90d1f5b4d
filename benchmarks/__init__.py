"""One script a question, each measuring graphgen beside what people would use instead."""
