// Helm, for the tests of charts: its own commands. Built by `make services`.
package main

import (
	"log"
	"os"

	"helm.sh/helm/v4/pkg/cmd"
)

func main() {
	root, err := cmd.NewRootCmd(os.Stdout, os.Args[1:], cmd.SetupLogging)
	if err != nil {
		log.Fatal(err)
	}
	if err := root.Execute(); err != nil {
		os.Exit(1)
	}
}
