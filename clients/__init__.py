"""Real clients against our gateway: what each of them sees of it. Opt-in; `make clients`."""
