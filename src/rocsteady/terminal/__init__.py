"""What is shown and asked at the terminal."""
