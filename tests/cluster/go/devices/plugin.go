package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// plugin answers the kubelet about the devices of one resource.
type plugin struct {
	api.UnimplementedDevicePluginServer
	config Config
}

// serve answers on a socket beside the kubelet's, and tells the kubelet of it. It returns when that fails.
func serve(config Config) error {
	name := strings.ReplaceAll(config.Resource, "/", "-") + ".sock"
	listener, err := net.Listen("unix", filepath.Join(api.DevicePluginPath, name))
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, plugin{config: config})
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	if err := register(name, config.Resource); err != nil {
		return fmt.Errorf("the kubelet does not take %s: %w", config.Resource, err)
	}
	log.Printf("%s is registered", config.Resource)
	return <-ended
}

// register tells the kubelet which socket answers for a resource.
func register(socket, resource string) error {
	connection, err := grpc.NewClient("unix://"+api.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	_, err = api.NewRegistrationClient(connection).Register(context.Background(), &api.RegisterRequest{
		Version: api.Version, Endpoint: socket, ResourceName: resource, Options: &api.DevicePluginOptions{},
	})
	return err
}

func (p plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch tells of all devices at once, which stay healthy.
func (p plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	response := &api.ListAndWatchResponse{}
	for number := range p.config.Devices {
		response.Devices = append(response.Devices, &api.Device{ID: fmt.Sprintf("device-%d", number), Health: api.Healthy})
	}
	if err := stream.Send(response); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// Allocate hands each container the same files and variables, whichever devices it gets.
func (p plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	response := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		log.Printf("%s: %v", p.config.Resource, container.DevicesIds)
		given := &api.ContainerAllocateResponse{Envs: p.config.Environment}
		for _, mount := range p.config.Mounts {
			given.Mounts = append(given.Mounts, &api.Mount{HostPath: mount.Host, ContainerPath: mount.Container, ReadOnly: true})
		}
		response.ContainerResponses = append(response.ContainerResponses, given)
	}
	return response, nil
}
