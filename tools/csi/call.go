// Asks a CSI driver one thing: `csi-call SOCKET SERVICE/METHOD REQUEST`, the request and the answer being JSON. An error
// of the driver is {"code": …, "message": …}, and the exit code is 3.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	_ "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
)

const patience = 60 * time.Second

func fail(what string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "csi-call: %s: %v\n", what, err)
		os.Exit(1)
	}
}

func main() {
	socket, path, text := os.Args[1], os.Args[2], os.Args[3]
	var service, name string
	for i := range path {
		if path[i] == '/' {
			service, name = path[:i], path[i+1:]
		}
	}
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("csi.v1." + service))
	fail(path, err)
	method := found.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(name))
	request, answer := dynamicpb.NewMessage(method.Input()), dynamicpb.NewMessage(method.Output())
	fail(text, protojson.Unmarshal([]byte(text), request))
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"))
	fail(socket, err)
	context, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := connection.Invoke(context, "/csi.v1."+path, request, answer); err != nil {
		failed := status.Convert(err)
		told, _ := json.Marshal(map[string]string{"code": failed.Code().String(), "message": failed.Message()})
		fmt.Println(string(told))
		os.Exit(3)
	}
	told, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(answer)
	fail(path, err)
	fmt.Println(string(told))
}
