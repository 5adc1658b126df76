"""The gate with a GPU: tiny models of every family, converted, served and queried."""
