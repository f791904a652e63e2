package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	ephemeral    = "csi.storage.k8s.io/ephemeral"
	podNamespace = "csi.storage.k8s.io/pod.namespace"
	tokens       = "csi.storage.k8s.io/serviceaccount.tokens"
	audience     = "api://AzureADTokenExchange"
	// The shares of an account are directories of this one share of its SMB server.
	sharesName = "shares"
	// The identity of the node's own kubelet.
	kubeletIdentity = "kubelet"
	apiSeconds      = 10 * time.Second
)

// attributes are a volume's, with names in lower case as the driver compares them.
type attributes map[string]string

func fields(context map[string]string) attributes {
	lower := attributes{}
	for name, value := range context {
		lower[strings.ToLower(name)] = value
	}
	return lower
}

func (a attributes) is(name string) bool { return strings.EqualFold(a[name], "true") }

// keyless is whether the pod's own service account opens the share.
func (a attributes) keyless() bool {
	return a["clientid"] != "" || a.is("mountwithworkloadidentitytoken")
}

// token is the pod's token for Microsoft Entra.
func (a attributes) token() string {
	var all map[string]struct{ Token string }
	if json.Unmarshal([]byte(a[tokens]), &all) != nil {
		return ""
	}
	return all[audience].Token
}

// host is the server's name.
func (a attributes) host(account string) string {
	if server := strings.TrimSpace(a["server"]); server != "" {
		return server
	}
	if own := strings.TrimSpace(a["storageendpointsuffix"]); own != "" {
		return account + ".file." + own
	}
	return account + ".file." + suffix
}

// checkInline refuses what the driver refuses in a pod's own volumes.
func (a attributes) checkInline() error {
	switch share := a["sharename"]; {
	case strings.EqualFold(a["protocol"], "nfs"):
		return errors.New("NFS protocol is not supported for ephemeral volumes")
	case a.is("mountwithmanagedidentity"):
		return errors.New("mountWithManagedIdentity cannot be used for ephemeral volumes, " +
			"please use either mountwithworkloadidentitytoken or secret based authentication")
	case strings.ContainsAny(share, `/\`) || share == "." || share == "..":
		return fmt.Errorf("invalid shareName %q: must be a single share name", share)
	}
	return nil
}

// record is what the local cluster knows of a storage account.
type record struct {
	Key       string
	Address   string
	ClientIDs []string
}

func (d *driver) record(account string) (found record, err error) {
	content, err := os.ReadFile(filepath.Join(d.accounts, filepath.Base(account), ".account"))
	if err == nil {
		err = json.Unmarshal(content, &found)
	}
	return found, err
}

// address is where a host name leads: its first label is the account's name.
func (d *driver) address(host string) (string, error) {
	if _, err := netip.ParseAddr(host); err == nil {
		return host, nil
	}
	name, _, _ := strings.Cut(host, ".")
	found, err := d.record(name)
	return found.Address, err
}

// account is the name and key of the volume's storage account, and its share.
func (d *driver) account(ctx context.Context, call volumeCall) (account, key, share string, err error) {
	wanted := call.wanted
	var namespace string
	if parts := strings.Split(call.id, "#"); len(parts) >= 3 {
		account, share = parts[1], parts[2]
		if len(parts) > 5 {
			namespace = parts[5]
		}
	}
	account, share = cmp.Or(wanted["storageaccount"], account), cmp.Or(wanted["sharename"], share)
	namespace = cmp.Or(wanted["secretnamespace"], namespace, wanted["csi.storage.k8s.io/pvc/namespace"], "default")
	if wanted.is(ephemeral) {
		namespace = wanted[podNamespace]
		if !wanted.is("mountwithworkloadidentitytoken") {
			account = "" // only the secret names it
		}
	}
	switch {
	case wanted["protocol"] == "nfs":
		return cmp.Or(account, "nfs"), "", share, nil
	case wanted.is("mountwithmanagedidentity"):
		key = d.keyOf(account, cmp.Or(wanted["clientid"], kubeletIdentity))
		return account, key, share, nil
	case wanted.keyless():
		if wanted.token() == "" {
			return account, "", share, errors.New("failed to parse service account token: token is empty")
		}
		return account, d.keyOf(account, cmp.Or(wanted["clientid"], kubeletIdentity)), share, nil
	case len(call.secrets) > 0:
		name, value := strings.TrimSpace(call.secrets["azurestorageaccountname"]), call.secrets["azurestorageaccountkey"]
		return cmp.Or(name, account), strings.TrimSpace(value), share, nil
	}
	secret := wanted["secretname"]
	if secret == "" && account != "" {
		secret = "azure-storage-account-" + account + "-secret"
	}
	if secret == "" {
		return account, "", share, nil
	}
	data, err := d.secret(ctx, namespace, secret)
	if err != nil {
		return account, "", share, fmt.Errorf("could not get secret(%s): %w", secret, err)
	}
	name := strings.TrimSpace(string(data["azurestorageaccountname"]))
	return cmp.Or(name, account), strings.TrimSpace(string(data["azurestorageaccountkey"])), share, nil
}

// keyOf stands for Azure's answer to an identity: the key where it has a role on the account, else one that is wrong.
func (d *driver) keyOf(account, clientID string) string {
	found, err := d.record(account)
	if err == nil && slices.Contains(found.ClientIDs, clientID) {
		return found.Key
	}
	return "no role assignment"
}

// secret reads a secret as the driver's own user.
func (d *driver) secret(ctx context.Context, namespace, name string) (map[string][]byte, error) {
	authority, err := os.ReadFile(filepath.Join(d.pki, "ca.crt"))
	if err != nil {
		return nil, err
	}
	own, err := tls.LoadX509KeyPair(filepath.Join(d.pki, "azure-files.crt"), filepath.Join(d.pki, "azure-files.key"))
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, Certificates: []tls.Certificate{own}}}
	defer transport.CloseIdleConnections()
	limited, cancel := context.WithTimeout(ctx, apiSeconds)
	defer cancel()
	url := fmt.Sprintf("%s/api/v1/namespaces/%s/secrets/%s", d.server, namespace, name)
	asked, err := http.NewRequestWithContext(limited, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	answered, err := (&http.Client{Transport: transport}).Do(asked)
	if err != nil {
		return nil, err
	}
	defer answered.Body.Close()
	var found struct {
		Data    map[string][]byte
		Message string
	}
	if err := json.NewDecoder(answered.Body).Decode(&found); err != nil {
		return nil, err
	}
	if answered.StatusCode != http.StatusOK {
		return nil, errors.New(found.Message)
	}
	return found.Data, nil
}
