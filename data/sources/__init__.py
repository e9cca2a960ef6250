"""One module for each benchmark or file format, to conversations, pools and texts."""
