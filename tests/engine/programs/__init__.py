"""Programs that tests start as processes of their own, to interrupt or kill them."""
