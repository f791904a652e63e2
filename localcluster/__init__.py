"""A real single-node Kubernetes on this machine, without Docker and without an image registry.

`python3 localcluster up` starts it; `localcluster.control_plane.standalone.ControlPlane` starts the API server alone.
Standard library only: it runs before anything of the project is installed.
"""
