"""Owns the target model and decides every token."""
