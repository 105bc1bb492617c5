// Asks a CSI driver one thing: `csi-call SOCKET SERVICE/METHOD REQUEST`, the request and the answer being JSON; of a
// method that streams, one line for each answer. An error of the driver is {"code": …, "message": …}, and the exit code
// is 3.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

func refused(err error) {
	if err == nil {
		return
	}
	failed := status.Convert(err)
	told, _ := json.Marshal(map[string]string{"code": failed.Code().String(), "message": failed.Message()})
	fmt.Println(string(told))
	os.Exit(3)
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
	answers := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}
	tell := func() {
		told, err := answers.Marshal(answer)
		fail(path, err)
		fmt.Println(string(told))
	}
	if !method.IsStreamingServer() {
		refused(connection.Invoke(context, "/csi.v1."+path, request, answer))
		tell()
		return
	}
	stream, err := connection.NewStream(context, &grpc.StreamDesc{ServerStreams: true}, "/csi.v1."+path)
	refused(err)
	refused(stream.SendMsg(request))
	refused(stream.CloseSend())
	for {
		answer.Reset()
		err := stream.RecvMsg(answer)
		if errors.Is(err, io.EOF) {
			return
		}
		refused(err)
		tell()
	}
}
