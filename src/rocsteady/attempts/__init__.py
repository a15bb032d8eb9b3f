"""What happens in one attempt: it is started, watched and ended."""
