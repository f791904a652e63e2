"""Azure Files in the local cluster: storage accounts, and the CSI driver that mounts their shares."""
