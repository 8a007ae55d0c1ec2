package routing

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"

	"portico/discovery/openapi"
	"portico/discovery/openapi/swagger"
)

// openAPIPart is one group/version and who has its OpenAPI.
type openAPIPart struct {
	key, name string // "apis/G/V", and its APIService
	server    *Server
	available bool
}

// serversV2 are the servers that OpenAPI v2 is made of.
type serversV2 struct {
	servers []swagger.Server
	state   string
}

// V2 returns the servers that OpenAPI v2 is made of, in the order of the
// priorities of what they serve, the gateway itself among them, and a text that is
// another whenever these are.
func (x *OpenAPI) V2(own *openapi.Documents) ([]swagger.Server, string) {
	x.onceV2.Do(func() { x.v2 = x.serversV2(own) })
	return x.v2.servers, x.v2.state
}

// serversV2 is made at the first request for OpenAPI v2.
func (x *OpenAPI) serversV2(own *openapi.Documents) serversV2 {
	var out serversV2
	at := map[*Server]int{}
	state := sha256.New()
	for _, p := range x.parts {
		i, have := at[p.server]
		if !have {
			i = len(out.servers)
			at[p.server] = i
			out.servers = append(out.servers, newServerV2(p, own))
		}
		url := x.urls[p.key]
		if p.server == nil {
			url = own.URL(p.key)
		}
		srv := &out.servers[i]
		srv.Documents = append(srv.Documents, swagger.Document{APIService: p.name, Key: p.key, URL: url})
		fmt.Fprintf(state, "%q %q %q %q\n", srv.ID, srv.State, p.key, url)
	}
	out.state = hex.EncodeToString(state.Sum(nil))
	return out
}

func newServerV2(p openAPIPart, own *openapi.Documents) swagger.Server {
	if p.server == nil {
		return swagger.Server{ID: "gateway", Fetch: ownOpenAPI(own)}
	}
	srv := p.server
	return swagger.Server{
		ID: srv.OpenAPIOwner(), State: fmt.Sprint(p.available),
		Fetch: srv.Source.Document,
	}
}

// ownOpenAPI answers for the gateway as a server without OpenAPI v2 would.
func ownOpenAPI(own *openapi.Documents) func(ctx context.Context, path, etag string) (*swagger.Answer, error) {
	return func(ctx context.Context, path, _ string) (*swagger.Answer, error) {
		key, _, _ := strings.Cut(strings.TrimPrefix(path, "/openapi/v3/"), "?")
		data, ok, err := own.JSON(ctx, key)
		switch {
		case err != nil:
			return nil, err
		case !ok:
			return &swagger.Answer{Code: http.StatusNotFound}, nil
		}
		return &swagger.Answer{Code: http.StatusOK, Body: data}, nil
	}
}
