// All programs of a Kubernetes cluster in one, since most of what they are made of is the same. The name that the
// program is called by says which one is meant: a link of that name leads here.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func command(make func() *cobra.Command) func() int {
	return func() int { return cli.Run(make()) }
}

var programs = map[string]func() int{
	"etcd":                    func() int { etcdmain.Main(os.Args); return 0 },
	"kube-apiserver":          command(apiserver.NewAPIServerCommand),
	"kube-controller-manager": command(controllers.NewControllerManagerCommand),
	"kube-scheduler":          command(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kube-proxy":              command(proxy.NewProxyCommand),
	"kubelet":                 command(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
	"kubectl": func() int {
		if cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()) != nil {
			return 1
		}
		return 0
	},
}

func main() {
	name := filepath.Base(os.Args[0])
	run, known := programs[name]
	if !known {
		var names []string
		for name := range programs {
			names = append(names, name)
		}
		sort.Strings(names)
		fmt.Fprintf(os.Stderr, "%s is no program of a cluster; call this one by the name of: %s\n", name, strings.Join(names, ", "))
		os.Exit(2)
	}
	os.Exit(run())
}
