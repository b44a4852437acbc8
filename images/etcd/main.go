// etcd, etcdctl and etcdutl as one binary: the name it is called by says which
// of them runs.
//
// Each does what its own main does upstream. That of etcdutl cannot be imported
// and differs from version to version: the part that does is in the version's
// folder. Versions are pinned by go.mod and go.sum there.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/etcdctl/v3/ctlv3"
	"go.etcd.io/etcd/etcdutl/v3/etcdutl"
	"go.etcd.io/etcd/pkg/v3/cobrautl"
	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	switch name := filepath.Base(os.Args[0]); name {
	case "etcd":
		etcdmain.Main(os.Args)
	case "etcdctl":
		runEtcdctl()
	case "etcdutl":
		runEtcdutl()
	default:
		fmt.Fprintf(os.Stderr, "%s is no program of this binary: call it etcd, etcdctl or etcdutl\n", name)
		os.Exit(2)
	}
}

func runEtcdctl() {
	// Old habits set it. There is no other API here, and etcdctl would take it for a mistyped option.
	if os.Getenv("ETCDCTL_API") == "3" {
		os.Unsetenv("ETCDCTL_API")
	}
	ctlv3.MustStart()
}

func runEtcdutl() {
	root := &cobra.Command{Use: "etcdutl", Short: "An administrative command line tool for etcd3."}
	root.PersistentFlags().StringVarP(&etcdutl.OutputFormat, "write-out", "w", "simple", "set the output format (fields, json, protobuf, simple, table)")
	addCommands(root)
	root.SetHelpTemplate(`{{.UsageString}}`)
	if err := root.Execute(); err != nil {
		cobrautl.ExitWithError(cobrautl.ExitError, err)
	}
}
