"""What people see: tables and pictures as strings. Nothing here prints."""
