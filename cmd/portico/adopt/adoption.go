package adopt

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/etcd"
	"portico/resource/serve/version"
)

const timeFormat = time.RFC3339

// Mark says that an etcd was adopted. It is a document of the family "adoption", beside kube-apiserver's keys.
type Mark struct {
	Time    time.Time `json:"time"`
	Version string    `json:"version"` // of Portico
	// Revision is that of etcd before anything was written.
	Revision int64 `json:"revision"`
}

// markName is the name of the mark among its documents.
const markName = "kube-apiserver"

// adoption is what an adoption writes.
type adoption struct {
	client *etcd.Client
	mark   *Mark // nil: etcd is not adopted yet
	ended  []resource.Key
}

func newAdoption(ctx context.Context, client *etcd.Client, s *survey) (*adoption, error) {
	a := &adoption{client: client, ended: s.facts.ended}
	found, err := client.Documents("adoption").Read(ctx)
	if err != nil {
		return nil, fmt.Errorf("read mark of adoption: %w", err)
	}
	if d, ok := found[markName]; ok {
		a.mark = new(Mark)
		if err := json.Unmarshal(d.Data, a.mark); err != nil {
			return nil, fmt.Errorf("read mark of adoption: %w", err)
		}
	}
	return a, nil
}

// changes says what write does.
func (a *adoption) changes() (changes []string) {
	if n := len(a.ended); n > 0 {
		changes = append(changes, fmt.Sprintf("remove the leases of API servers that ended (%d)", n))
	}
	if a.mark == nil {
		changes = append(changes, "mark the etcd as adopted")
	}
	return changes
}

// write removes the leases and marks etcd. What another adoption wrote meanwhile is left as it is.
func (a *adoption) write(ctx context.Context) error {
	leases := a.client.Store(&resource.Info{
		Group: coordinationv1.GroupName, Versions: []string{"v1"}, Resource: "leases", Kind: "Lease", Namespaced: true,
	})
	for _, key := range a.ended {
		if _, err := leases.Delete(ctx, key, nil); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove lease %s: %w", key, err)
		}
	}
	if a.mark != nil {
		return nil
	}
	status, err := a.client.Status(ctx)
	if err != nil {
		return err
	}
	data, err := json.Marshal(Mark{Time: time.Now().UTC().Truncate(time.Second), Version: version.Version(), Revision: status.Revision})
	if err != nil {
		return fmt.Errorf("mark etcd as adopted: %w", err)
	}
	if _, err := a.client.Documents("adoption").Write(ctx, markName, data, 0); err != nil {
		return fmt.Errorf("mark etcd as adopted: %w", err)
	}
	return nil
}
