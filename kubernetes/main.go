// Upstream Kubernetes, etcd and CoreDNS as one binary: the first argument, or
// the name it is called by, says which of them runs.
//
// Nothing here is ours but the table below. Versions are pinned by go.mod and
// go.sum; the version stamp comes from the linker flags that wheelhouse-local
// passes (crates/wheelhouse-local/src/binaries.rs).
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
	_ "github.com/coredns/coredns/plugin/template"
	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var programs = map[string]func(){
	"kube-apiserver":          command(func() *cobra.Command { return apiserver.NewAPIServerCommand() }),
	"kube-controller-manager": command(func() *cobra.Command { return controllermanager.NewControllerManagerCommand() }),
	"kube-scheduler":          command(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kubelet":                 command(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
	"kube-proxy":              command(func() *cobra.Command { return proxy.NewProxyCommand() }),
	"kubectl": func() {
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
	},
	"etcd":    func() { etcdmain.Main(os.Args) },
	"coredns": coredns,
}

func main() {
	name := filepath.Base(os.Args[0])
	if programs[name] == nil && len(os.Args) > 1 {
		name = os.Args[1]
		os.Args = os.Args[1:]
	}
	run := programs[name]
	if run == nil {
		names := make([]string, 0, len(programs))
		for each := range programs {
			names = append(names, each)
		}
		sort.Strings(names)
		fmt.Fprintf(os.Stderr, "%s is no program of this binary; it has: %s\n", name, strings.Join(names, ", "))
		os.Exit(2)
	}
	if name != "coredns" {
		forgetCoreDNSFlags()
	}
	run()
}

func command(build func() *cobra.Command) func() {
	return func() { os.Exit(cli.Run(build())) }
}

// CoreDNS registers its flags for the whole process as it is loaded, and
// kube-proxy would take --version for one of them.
func forgetCoreDNSFlags() {
	theirs := map[string]bool{"conf": true, "dns.port": true, "p": true, "pidfile": true, "plugins": true, "quiet": true, "version": true}
	ours := flag.NewFlagSet(os.Args[0], flag.ExitOnError)
	flag.CommandLine.VisitAll(func(each *flag.Flag) {
		if !theirs[each.Name] {
			ours.Var(each.Value, each.Name, each.Usage)
		}
	})
	flag.CommandLine = ours
}

// The order in which CoreDNS runs the plugins it has.
func coredns() {
	dnsserver.Directives = []string{"reload", "errors", "health", "ready", "cache", "kubernetes", "template"}
	coremain.Run()
}
