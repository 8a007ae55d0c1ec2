package kinds

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource/rest"
)

func fieldPath(name string) *field.Path { return field.NewPath(name) }

// The columns and cells of every kind. [x] is a wide column; every object is 3 days old.
func TestTables(t *testing.T) {
	for _, c := range []struct{ resource, manifest, columns, row string }{
		{"namespaces", `{"status":{"phase":"Terminating"}}`, "Name|Status|Age", "x|Terminating|3d"},
		{"configmaps", `{"data":{"a":"1"},"binaryData":{"b":""}}`, "Name|Data|Age", "x|2|3d"},
		{"secrets", `{"data":{"a":""}}`, "Name|Type|Data|Age", "x|Opaque|1|3d"},
		{"services", `{"spec":{"clusterIPs":["10.0.0.1"],"selector":{"b":"2","a":"1"},"ports":[{"port":80},{"port":53,"protocol":"UDP","nodePort":30000}]}}`,
			"Name|Type|Cluster-IP|External-IP|Port(s)|Age|[Selector]", "x|ClusterIP|10.0.0.1|<none>|80/TCP,53:30000/UDP|3d|a=1,b=2"},
		{"services", `{"spec":{"type":"LoadBalancer","externalIPs":["10.9.9.9"]},"status":{"loadBalancer":{"ingress":[{"ip":"10.2.2.2"},{"hostname":"h"},{"ip":"10.1.1.1"}]}}}`,
			"", "x|LoadBalancer|<none>|10.1.1.1,10.2.2.2,h,10.9.9.9|<none>|3d|<none>"},
		{"services", `{"spec":{"type":"LoadBalancer"}}`, "", "x|LoadBalancer|<none>|<pending>|<none>|3d|<none>"},
		{"services", `{"spec":{"type":"ExternalName","externalName":"localhost"}}`, "", "x|ExternalName|<none>|localhost|<none>|3d|<none>"},
		{"endpoints", `{"subsets":[{"addresses":[{"ip":"10.0.0.1"},{"ip":"fd00::1"}],"notReadyAddresses":[{"ip":"10.0.0.9"}],"ports":[{"port":80},{"port":81}]}]}`,
			"Name|Endpoints|Age", "x|10.0.0.1:80,[fd00::1]:80,10.0.0.1:81 + 1 more...|3d"},
		{"endpoints", `{"subsets":[{"addresses":[{"ip":"10.0.0.1"}]}]}`, "", "x|10.0.0.1|3d"},
		{"endpoints", `{}`, "", "x|<none>|3d"},
		{"endpointslices.discovery.k8s.io", `{"addressType":"IPv4","endpoints":[{"addresses":["1","2"]},{"addresses":["3","4"]}],"ports":[{"port":80},{"name":"a"},{}]}`,
			"Name|AddressType|Ports|Endpoints|Age", "x|IPv4|80,a,*|1,2,3 + 1 more...|3d"},
		{"endpointslices.discovery.k8s.io", `{"addressType":"IPv4"}`, "", "x|IPv4|<unset>|<unset>|3d"},
		{"serviceaccounts", `{"secrets":[{"name":"s"}]}`, "Name|Age", "x|3d"},
		{"leases.coordination.k8s.io", `{"spec":{"holderIdentity":"me"}}`, "Name|Holder|Age", "x|me|3d"},
		{"events", `{"message":"m","type":"Normal"}`, "Last Seen|Type|Reason|Object|[Subobject]|[Source]|Message|[First Seen]|[Count]|[Name]",
			"<unknown>|Normal|||||m|<unknown>|1|x"},
		{"events.events.k8s.io", `{"note":"m","type":"Normal","eventTime":null}`, "Last Seen|Type|Reason|Object|[Subobject]|[Source]|Message|[First Seen]|[Count]|[Name]",
			"<unknown>|Normal|||||m|<unknown>|1|x"},
		{"validatingwebhookconfigurations" + admissionGroup, `{"webhooks":[{},{}]}`, "Name|Webhooks|Age", "x|2|3d"},
		{"mutatingwebhookconfigurations" + admissionGroup, `{"webhooks":[{}]}`, "Name|Webhooks|Age", "x|1|3d"},
		{"validatingadmissionpolicies" + admissionGroup, `{"spec":{"validations":[{}],"paramKind":{"apiVersion":"a/v1","kind":"K"}}}`,
			"Name|Validations|ParamKind|Age", "x|1|a/v1/K|3d"},
		{"validatingadmissionpolicybindings" + admissionGroup, `{"spec":{"policyName":"p","paramRef":{"name":"r","namespace":"n"}}}`,
			"Name|PolicyName|ParamRef|Age", "x|p|n/r|3d"},
		{"mutatingadmissionpolicies" + admissionGroup, `{"spec":{"mutations":[{},{}]}}`, "Name|Mutations|ParamKind|Age", "x|2|<unset>|3d"},
		{"mutatingadmissionpolicybindings" + admissionGroup, `{"spec":{"policyName":"p","paramRef":{"name":"r"}}}`,
			"Name|PolicyName|ParamRef|Age", "x|p|*/r|3d"},
		{"deployments.apps", `{"spec":{"replicas":3,"selector":{"matchLabels":{"a":"b"}},"template":{"spec":{"containers":[{"name":"c","image":"i"},{"name":"d","image":"j"}]}}},"status":{"readyReplicas":1}}`,
			"Name|Ready|Up-to-date|Available|Age|[Containers]|[Images]|[Selector]", "x|1/3|0|0|3d|c,d|i,j|a=b"},
		{"deployments.apps", `{"spec":{"selector":{"matchExpressions":[{"operator":"?"}]}}}`, "", "x|0/1|0|0|3d|||<invalid>"},
		{"replicasets.apps", `{"status":{"replicas":2}}`, "Name|Desired|Current|Ready|Age|[Containers]|[Images]|[Selector]", "x|1|2|0|3d|||<none>"},
		{"replicationcontrollers", `{"spec":{"selector":{"a":"b"}}}`, "Name|Desired|Current|Ready|Age|[Containers]|[Images]|[Selector]", "x|1|0|0|3d|||a=b"},
		{"statefulsets.apps", `{}`, "Name|Ready|Age|[Containers]|[Images]", "x|0/1|3d||"},
		{"daemonsets.apps", `{"spec":{"template":{"spec":{"nodeSelector":{"a":"b"}}}},"status":{"desiredNumberScheduled":2}}`,
			"Name|Desired|Current|Ready|Up-to-date|Available|Node Selector|Age|[Containers]|[Images]|[Selector]", "x|2|0|0|0|0|a=b|3d|||<none>"},
		{"controllerrevisions.apps", `{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"DaemonSet","name":"d","controller":true}]},"revision":4}`,
			"Name|Controller|Revision|Age", "x|daemonset.apps/d|4|3d"},
		{"validatingadmissionpolicybindings" + admissionGroup, `{"spec":{"policyName":"p","paramRef":{"selector":{"matchLabels":{"a":"b"}}}}}`,
			"", "x|p|a=b|3d"},
	} {
		t.Run(c.resource, func(t *testing.T) {
			k := kind(t, c.resource)
			obj := looseDecode(t, k, c.manifest)
			obj.SetName("x")
			obj.SetCreationTimestamp(metav1.NewTime(time.Now().Add(-73 * time.Hour)))
			cells, err := k.Cells(obj)
			if err != nil {
				t.Fatal(err)
			}
			var columns, row []string
			for i, column := range k.Columns {
				name := column.Name
				if column.Priority > 0 {
					name = "[" + name + "]"
				}
				columns = append(columns, name)
				row = append(row, strings.Replace(fmt.Sprint(cells[i]), "3d1h", "3d", 1))
			}
			if got := strings.Join(columns, "|"); c.columns != "" && got != c.columns {
				t.Errorf("columns %s, want %s", got, c.columns)
			}
			if got := strings.Join(row, "|"); got != c.row {
				t.Errorf("row %s, want %s", got, c.row)
			}
		})
	}
}

// looseDecode decodes manifests that validation would reject.
func looseDecode(t *testing.T, k *rest.Kind, manifest string) rest.Object {
	t.Helper()
	obj, _, err := k.Codec.Decode([]byte(manifest), jsonType, k.GVK("v1"), false)
	if err != nil {
		t.Fatal(err)
	}
	if k.Strategy.Default != nil {
		k.Strategy.Default(obj.(rest.Object))
	}
	return obj.(rest.Object)
}

func TestAge(t *testing.T) {
	if got := age(metav1.Time{}); got != unknown {
		t.Errorf("age of no time is %s", got)
	}
	if got := age(metav1.NewTime(time.Now().Add(-400 * 24 * time.Hour))); got != "400d" && got != "1y35d" {
		t.Errorf("age of 400 days is %s", got)
	}
}
