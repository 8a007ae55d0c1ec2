// Command kubectl is the real kubectl, built from its module for the
// end-to-end tests.
//
// It is in a Go module of its own, so that the versions that kubectl and
// sample-apiserver ask for do not move Portico's.
//
// Runs in: tests.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
	os.Exit(0)
}
