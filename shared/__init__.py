"""What two or more services use. Imports no service."""
