// Tells kubelet of a CSI driver, as the CSI project's node-driver-registrar does, whose module Go's proxy lacks: the
// same options, and the same two calls.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/container-storage-interface/spec/lib/go/csi"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

type server struct {
	registration.UnsafeRegistrationServer
	name, socket string
}

func (s server) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: s.name, Endpoint: s.socket, SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (s server) NotifyRegistrationStatus(_ context.Context, status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !status.PluginRegistered {
		log.Fatalf("kubelet does not take the driver: %s", status.Error)
	}
	log.Print("kubelet has taken the driver")
	return &registration.RegistrationStatusResponse{}, nil
}

func driver(address string) string {
	for {
		connection, err := grpc.NewClient("unix://"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err == nil {
			answer, failed := csi.NewIdentityClient(connection).GetPluginInfo(context.Background(), &csi.GetPluginInfoRequest{})
			connection.Close()
			if failed == nil {
				return answer.Name
			}
			err = failed
		}
		log.Printf("the driver at %s does not answer yet: %v", address, err)
		time.Sleep(500 * time.Millisecond)
	}
}

func main() {
	address := flag.String("csi-address", "/csi/csi.sock", "the driver's socket as this program sees it")
	socket := flag.String("kubelet-registration-path", "", "the driver's socket as kubelet sees it")
	folder := flag.String("plugin-registration-path", "/registration", "kubelet's folder of plugins to be registered")
	flag.Int("v", 0, "not used")
	flag.Parse()
	name := driver(*address)
	path := *folder + "/" + name + "-reg.sock"
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		log.Fatal(err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		log.Fatal(err)
	}
	serving := grpc.NewServer()
	registration.RegisterRegistrationServer(serving, server{name: name, socket: *socket})
	log.Printf("the driver %s waits for kubelet at %s", name, path)
	log.Fatal(serving.Serve(listener))
}
