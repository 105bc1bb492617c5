// What a backup program asks: which blocks of a snapshot have data, or have changed since another one. It finds the
// driver's service, proves who it is with a token of its own pod's account, and writes what it is told as JSON.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/kubernetes-csi/external-snapshot-metadata/pkg/iterator"
	"k8s.io/client-go/tools/clientcmd"
)

func list() error {
	var args iterator.Args
	flag.StringVar(&args.Namespace, "namespace", "default", "of the snapshots")
	flag.StringVar(&args.SnapshotName, "snapshot", "", "the snapshot")
	flag.StringVar(&args.PrevSnapshotName, "since", "", "an earlier snapshot of the same volume")
	flag.StringVar(&args.SANamespace, "account-namespace", "default", "of the account")
	flag.StringVar(&args.SAName, "account", "", "the account whose token is shown")
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server; of a pod's account unless given")
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	if args.Clients, err = iterator.BuildClients(config); err != nil {
		return err
	}
	args.Emitter = &iterator.JSONEmitter{Writer: os.Stdout}
	return iterator.GetSnapshotMetadata(context.Background(), args)
}

func main() {
	if err := list(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
