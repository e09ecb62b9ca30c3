"""Models of YDF (Yggdrasil Decision Forests), read without its library."""
