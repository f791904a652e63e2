// The controllers of Argo CD that compare and synchronise Applications, in one binary, and a Redis in memory for them.
// Argo CD's own main also has its server, its command line and their web interface, which take longer to build.
package main

import (
	"os"

	"github.com/alicebob/miniredis/v2"
	controller "github.com/argoproj/argo-cd/v3/cmd/argocd-application-controller/commands"
	reposerver "github.com/argoproj/argo-cd/v3/cmd/argocd-repo-server/commands"
	"github.com/spf13/cobra"
)

func main() {
	command := &cobra.Command{Use: "argocd", SilenceUsage: true}
	command.AddCommand(controller.NewCommand(), reposerver.NewCommand(), newRedisCommand())
	if command.Execute() != nil {
		os.Exit(1)
	}
}

func newRedisCommand() *cobra.Command {
	return &cobra.Command{
		Use:  "redis ADDRESS",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, arguments []string) error {
			if err := miniredis.NewMiniRedis().StartAddr(arguments[0]); err != nil {
				return err
			}
			select {}
		},
	}
}
