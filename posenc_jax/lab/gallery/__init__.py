"""A picture, a table row and an explorer of each method, from measurements of the library."""
