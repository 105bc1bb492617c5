// Names of Services and of a StatefulSet's pods: of a Service its own address, or those of its pods if it has none.
package main

import (
	"flag"
	"log"
	"net"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	listers "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/clientcmd"
)

type names struct {
	domain   string
	services corelisters.ServiceLister
	slices   listers.EndpointSliceLister
}

// addresses are those that a name stands for, and whether it is one of the cluster's.
func (names names) addresses(name string) ([]net.IP, bool) {
	inside, ours := strings.CutSuffix(strings.TrimSuffix(name, "."), ".svc."+names.domain)
	if !ours {
		return nil, false
	}
	words := strings.Split(inside, ".")
	if len(words) < 2 {
		return nil, true
	}
	host, service, namespace := "", words[len(words)-2], words[len(words)-1]
	if len(words) > 2 {
		host = words[len(words)-3]
	}
	if known, err := names.services.Services(namespace).Get(service); err == nil && host == "" {
		if ip := net.ParseIP(known.Spec.ClusterIP).To4(); known.Spec.ClusterIP != core.ClusterIPNone && ip != nil {
			return []net.IP{ip}, true
		}
	}
	all, err := names.slices.EndpointSlices(namespace).List(labels.Set{discovery.LabelServiceName: service}.AsSelector())
	if err != nil {
		return nil, true
	}
	var found []net.IP
	for _, slice := range all {
		for _, endpoint := range slice.Endpoints {
			ready := endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready
			if !ready || host != "" && (endpoint.Hostname == nil || *endpoint.Hostname != host) {
				continue
			}
			for _, address := range endpoint.Addresses {
				if ip := net.ParseIP(address).To4(); ip != nil {
					found = append(found, ip)
				}
			}
		}
	}
	return found, true
}

func (names names) answer(query []byte) ([]byte, error) {
	var parser dnsmessage.Parser
	header, err := parser.Start(query)
	if err != nil {
		return nil, err
	}
	question, err := parser.Question()
	if err != nil {
		return nil, err
	}
	found, ours := names.addresses(question.Name.String())
	reply := dnsmessage.Header{ID: header.ID, Response: true, Authoritative: ours, RecursionDesired: header.RecursionDesired}
	if len(found) == 0 {
		reply.RCode = dnsmessage.RCodeNameError
	}
	builder := dnsmessage.NewBuilder(nil, reply)
	if err := builder.StartQuestions(); err != nil {
		return nil, err
	}
	if err := builder.Question(question); err != nil {
		return nil, err
	}
	if err := builder.StartAnswers(); err != nil {
		return nil, err
	}
	if question.Type == dnsmessage.TypeA {
		for _, ip := range found {
			resource := dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: 1}
			if err := builder.AResource(resource, dnsmessage.AResource{A: [4]byte(ip)}); err != nil {
				return nil, err
			}
		}
	}
	return builder.Finish()
}

func main() {
	listen := flag.String("listen", "127.0.0.1:53", "where queries come in, over UDP")
	domain := flag.String("domain", "cluster.local", "what the cluster's names end with")
	config := flag.String("kubeconfig", "", "how the API server is reached")
	flag.Parse()
	settings, err := clientcmd.BuildConfigFromFlags("", *config)
	if err != nil {
		log.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(settings), time.Minute)
	known := names{
		domain:   *domain,
		services: factory.Core().V1().Services().Lister(),
		slices:   factory.Discovery().V1().EndpointSlices().Lister(),
	}
	factory.Start(nil)
	factory.WaitForCacheSync(nil)
	socket, err := net.ListenPacket("udp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	buffer := make([]byte, 4096)
	for {
		length, from, err := socket.ReadFrom(buffer)
		if err != nil {
			log.Fatal(err)
		}
		reply, err := known.answer(buffer[:length])
		if err != nil {
			log.Printf("a query from %s: %v", from, err)
			continue
		}
		if _, err := socket.WriteTo(reply, from); err != nil {
			log.Print(err)
		}
	}
}
