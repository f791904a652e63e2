"""Azure Files: shares, their URLs, and the files on them."""
