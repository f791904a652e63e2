// etcd's own module cannot be installed by version, because its go.mod replaces modules; this one requires it instead.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
