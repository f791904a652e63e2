"""The HorovodJob resource: its constants, its models and the CRD generated from them."""
