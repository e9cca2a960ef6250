"""The study: trains and answers the rows of one benchmark and reports on them."""
