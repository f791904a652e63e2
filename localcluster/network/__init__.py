"""The network of nodes and pods: namespace, CNI configuration, DNS and NetworkPolicies."""
