"""Why did it end, and what may change? Signatures, classification, remedies."""
