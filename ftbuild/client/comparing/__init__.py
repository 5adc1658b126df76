"""The answers of two servers, compared token by token: before and after a move to another image or engine."""
