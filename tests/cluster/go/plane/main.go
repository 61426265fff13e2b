// Command plane holds a Kubernetes control plane, a kubelet, kube-proxy and kubectl in one binary:
// one link, one file to keep, and every part of exactly the same version.
//
// The part is chosen by the name that the program is called by (through a symbolic link), or by the
// first argument:
//
//	plane etcd|kube-apiserver|kube-controller-manager|kube-scheduler|kubelet|kube-proxy|kubectl [flags]
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	_ "time/tzdata"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"

	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var parts = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	"kube-proxy":              proxy.NewProxyCommand,
	"kubectl":                 kubectl.NewDefaultKubectlCommand,
}

func main() {
	name := filepath.Base(os.Args[0])
	if parts[name] == nil && name != "etcd" {
		if len(os.Args) < 2 {
			usage()
		}
		os.Args = os.Args[1:]
		name = os.Args[0]
	}
	if name == "etcd" {
		os.Exit(runEtcd(os.Args[1:]))
	}
	part := parts[name]
	if part == nil {
		usage()
	}
	os.Exit(cli.Run(part()))
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: plane etcd|kube-apiserver|kube-controller-manager|kube-scheduler|kubelet|kube-proxy|kubectl [flags]")
	os.Exit(2)
}
