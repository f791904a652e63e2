package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const (
	driverName = "file.csi.azure.com"
	suffix     = "core.windows.net"
	helpLink   = "\nPlease refer to http://aka.ms/filemounterror for possible causes and solutions for mount errors."
)

type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	registration.UnimplementedRegistrationServer
	node, accounts, kubeletRoot, server, pki string

	// The paths that a call is busy with: there is one call for each at a time.
	busy sync.Map
}

// serve answers the kubelet. The driver's socket comes first: the kubelet calls as soon as it sees the registration.
func (d *driver) serve() error {
	server := grpc.NewServer(grpc.UnaryInterceptor(logged))
	csi.RegisterIdentityServer(server, d)
	csi.RegisterNodeServer(server, d)
	registration.RegisterRegistrationServer(server, d)
	plugin, err := listen(d.socket())
	if err != nil {
		return err
	}
	go server.Serve(plugin)
	// Short: the path of a socket has at most 107 characters, and a node's directory may be deep.
	registrar, err := listen(filepath.Join(d.kubeletRoot, "plugins_registry", "files.sock"))
	if err != nil {
		return err
	}
	return server.Serve(registrar)
}

func (d *driver) socket() string {
	return filepath.Join(d.kubeletRoot, "plugins", "files", "csi.sock")
}

// listen makes the socket beside its place and moves it there: the kubelet must not find it before it answers.
func listen(place string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(place), 0o750); err != nil {
		return nil, err
	}
	os.Remove(place)
	return net.Listen("unix", place)
}

// logged writes calls that failed; requests hold secrets and are never written.
func logged(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	answer, err := handle(ctx, request)
	if err != nil {
		log.Printf("%s: %v", info.FullMethod, err)
	}
	return answer, err
}

func (d *driver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: driverName, Endpoint: d.socket(), SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (d *driver) NotifyRegistrationStatus(
	_ context.Context, answer *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	log.Printf("registered: %v %s", answer.PluginRegistered, answer.Error)
	return &registration.RegistrationStatusResponse{}, nil
}

func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: driverName, VendorVersion: "local-cluster"}, nil
}

func (d *driver) GetPluginCapabilities(
	context.Context, *csi.GetPluginCapabilitiesRequest,
) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{}, nil
}

func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.node}, nil
}

func (d *driver) NodeGetCapabilities(
	context.Context, *csi.NodeGetCapabilitiesRequest,
) (*csi.NodeGetCapabilitiesResponse, error) {
	answer := &csi.NodeGetCapabilitiesResponse{}
	for _, one := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP,
	} {
		rpc := &csi.NodeServiceCapability_RPC{Type: one}
		answer.Capabilities = append(answer.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: rpc},
		})
	}
	return answer, nil
}

// NodeStageVolume mounts the share of a PersistentVolume for the node.
func (d *driver) NodeStageVolume(
	ctx context.Context, call *csi.NodeStageVolumeRequest,
) (*csi.NodeStageVolumeResponse, error) {
	wanted := fields(call.GetVolumeContext())
	if wanted.keyless() && wanted.token() == "" { // kubelets send tokens only with NodePublishVolume
		return &csi.NodeStageVolumeResponse{}, nil
	}
	target := call.GetStagingTargetPath()
	one := volumeCall{call.GetVolumeId(), target, call.GetVolumeCapability(), call.GetSecrets(), wanted}
	return &csi.NodeStageVolumeResponse{}, d.mountShare(ctx, one)
}

// NodePublishVolume mounts the share of an inline volume, or gives a pod what NodeStageVolume has mounted.
func (d *driver) NodePublishVolume(
	ctx context.Context, call *csi.NodePublishVolumeRequest,
) (*csi.NodePublishVolumeResponse, error) {
	answer, wanted, target := &csi.NodePublishVolumeResponse{}, fields(call.GetVolumeContext()), call.GetTargetPath()
	one := volumeCall{call.GetVolumeId(), target, call.GetVolumeCapability(), call.GetSecrets(), wanted}
	switch {
	case wanted.is(ephemeral):
		if err := wanted.checkInline(); err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		return answer, d.mountShare(ctx, one)
	case wanted.keyless():
		return answer, d.mountShare(ctx, one)
	case call.GetStagingTargetPath() == "":
		return nil, status.Error(codes.InvalidArgument, "Staging target not provided")
	}
	if isMounted(target) {
		return answer, nil
	}
	err := os.MkdirAll(target, 0o777)
	if err == nil {
		err = unix.Mount(call.GetStagingTargetPath(), target, "", unix.MS_BIND, "")
	}
	if err == nil && call.GetReadonly() {
		err = unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	if err != nil {
		return nil, status.Errorf(codes.Internal, "Could not mount %s at %s: %v", call.GetStagingTargetPath(), target, err)
	}
	return answer, nil
}

func (d *driver) NodeUnpublishVolume(
	_ context.Context, call *csi.NodeUnpublishVolumeRequest,
) (*csi.NodeUnpublishVolumeResponse, error) {
	return &csi.NodeUnpublishVolumeResponse{}, unmount(call.GetTargetPath())
}

func (d *driver) NodeUnstageVolume(
	_ context.Context, call *csi.NodeUnstageVolumeRequest,
) (*csi.NodeUnstageVolumeResponse, error) {
	return &csi.NodeUnstageVolumeResponse{}, unmount(call.GetStagingTargetPath())
}

type volumeCall struct {
	id, target string
	capability *csi.VolumeCapability
	secrets    map[string]string
	wanted     attributes
}

func (d *driver) mountShare(ctx context.Context, call volumeCall) error {
	if _, others := d.busy.LoadOrStore(call.target, true); others {
		return status.Errorf(codes.Aborted, "An operation with the given Volume ID %s already exists", call.id)
	}
	defer d.busy.Delete(call.target)
	user, key, share, err := d.account(ctx, call)
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "GetAccountInfo(%s) failed with error: %v", call.id, err)
	}
	switch protocol := call.wanted["protocol"]; {
	case share == "":
		return status.Errorf(codes.InvalidArgument, "failed to get file share name from %s", call.id)
	case user == "":
		return status.Errorf(codes.InvalidArgument, "failed to get account name from %s", call.id)
	case protocol == "nfs":
		return status.Error(codes.InvalidArgument, "protocol(nfs) is not available in the local cluster: it has SMB only")
	case protocol != "" && protocol != "smb":
		return status.Errorf(codes.InvalidArgument,
			"protocol(%s) is not supported, supported protocol list: [smb nfs]", protocol)
	case key == "":
		return status.Errorf(codes.Internal, "accountName(%s) or accountKey is empty", user)
	case isMounted(call.target):
		return nil
	}
	return d.mountAs(call, user, key, share)
}

func (d *driver) mountAs(call volumeCall, user, key, share string) error {
	folder := strings.Trim(call.wanted["foldername"], "/")
	host := call.wanted.host(user)
	source := strings.TrimSuffix("//"+host+"/"+share+"/"+folder, "/")
	list := call.options()
	failed := func(exit int, said error) error {
		return status.Errorf(codes.Internal,
			"volume(%s) mount %s on %s failed with mount failed: exit status %d\nMounting command: mount\n"+
				"Mounting arguments: -t cifs -o %s,<masked> %s %s\nOutput: %v\nRefer to the mount.cifs(8) manual page "+
				"(e.g. man mount.cifs) and kernel log messages (dmesg)\n%s",
			call.id, source, call.target, exit, strings.Join(list, ","), source, call.target, said, helpLink)
	}
	parsed, err := parseOptions(list)
	if err != nil {
		return failed(32, fmt.Errorf("mount error(22): Invalid argument (%w)", err))
	}
	address, err := d.address(host)
	if err != nil {
		return failed(1, fmt.Errorf("mount error: could not resolve address for %s: Unknown error", host))
	}
	if err := os.MkdirAll(call.target, 0o777); err != nil {
		return status.Errorf(codes.Internal, "MkdirAll %s failed with error: %v", call.target, err)
	}
	wanted := &request{
		Remote:  remote{Address: address, Share: sharesName, User: user, Key: key},
		Source:  source,
		Target:  call.target,
		Folders: strings.TrimSuffix(share+"/"+folder, "/"),
		Create:  call.wanted.is("createfolderifnotexist"),
		Options: parsed,
	}
	if err := startMount(wanted); err != nil {
		return failed(32, err)
	}
	return nil
}

// options are those of the volume and, as the real driver adds them, defaults for what it leaves open.
func (call volumeCall) options() []string {
	mount := call.capability.GetMount()
	list := append([]string{}, mount.GetMountFlags()...)
	if group := mount.GetVolumeMountGroup(); group != "" && !strings.Contains(strings.Join(list, ","), "gid=") {
		list = append(list, "gid="+group)
	}
	if own := call.wanted["mountoptions"]; call.wanted.is(ephemeral) && own != "" {
		list = append(list, strings.Split(own, ",")...)
	}
	for _, one := range []string{"file_mode=0777", "dir_mode=0777", "actimeo=30", "mfsymlinks"} {
		name, _, _ := strings.Cut(one, "=")
		if !strings.Contains(strings.Join(list, ","), name) {
			list = append(list, one)
		}
	}
	return list
}

// isMounted is false for a mount whose process has ended; that one is removed.
func isMounted(target string) bool {
	var here, above unix.Stat_t
	if err := unix.Stat(target, &here); err != nil {
		if err == unix.ENOTCONN {
			unix.Unmount(target, unix.MNT_DETACH)
		}
		return err == unix.EACCES || err == unix.EHOSTDOWN
	}
	return unix.Stat(filepath.Dir(target), &above) == nil && here.Dev != above.Dev
}

func unmount(target string) error {
	err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW)
	if err == unix.EBUSY {
		err = unix.Unmount(target, unix.MNT_DETACH)
	}
	if err == nil || err == unix.EINVAL || err == unix.ENOENT { // EINVAL: it is not mounted
		if err = os.Remove(target); err == nil || os.IsNotExist(err) {
			return nil
		}
	}
	return status.Errorf(codes.Internal, "failed to unmount target %s: %v", target, err)
}
