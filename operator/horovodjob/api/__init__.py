"""The HorovodJob resource: its vocabulary, its models and the CRD generated from them."""
