// azurefileplugin stands for the node part of Azure's driver file.csi.azure.com in the local cluster: the kubelet
// registers and calls it as it does the real one, and it mounts shares of real SMB servers, one for each account.
//
// What differs from a node of AKS: the client is not the kernel's cifs but a FUSE file system, so there are no symbolic
// links (mfsymlinks), no byte-range locks on the server (as with nobrl), and a file that another pod has open cannot be
// removed. There are no NFS shares and no dynamic provisioning.
package main

import (
	"flag"
	"log"
	"os"
	"strings"
)

func main() {
	log.SetFlags(log.LstdFlags | log.LUTC)
	if len(os.Args) == 3 && os.Args[1] == "mount" {
		if err := serveMount(); err != nil {
			log.Fatal(err)
		}
		return
	}
	accounts := flag.String("accounts", "", "directory of the storage accounts")
	server := flag.String("server", "", "URL of the API server")
	pki := flag.String("pki", "", "directory with ca.crt, azure-files.crt and azure-files.key")
	flag.Usage = func() { log.Print("the arguments are NODE=DIRECTORY: each node with its kubelet's directory") }
	flag.Parse()
	ended := make(chan error)
	for _, argument := range flag.Args() {
		node, root, _ := strings.Cut(argument, "=")
		one := &driver{node: node, kubeletRoot: root, accounts: *accounts, server: *server, pki: *pki}
		go func() { ended <- one.serve() }()
	}
	log.Fatal(<-ended)
}
