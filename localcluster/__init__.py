"""A real Kubernetes cluster on this machine, without Docker and without an image registry.

`python3 localcluster up` starts it; `localcluster.control_plane.standalone.ControlPlane` starts an API server without
nodes. It uses the standard library only, because it runs before the dependencies of the project are installed.
"""
