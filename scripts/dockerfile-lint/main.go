// Reads a Dockerfile from standard input by the rules of `docker build --check`, and says what they warn of.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/client/llb/sourceresolver"
	"github.com/moby/buildkit/frontend/dockerfile/dockerfile2llb"
	"github.com/opencontainers/go-digest"
)

// offline takes every image for one without settings, where BuildKit would ask a registry.
type offline struct{}

func (offline) ResolveImageConfig(
	_ context.Context, name string, _ sourceresolver.Opt,
) (string, digest.Digest, []byte, error) {
	config := []byte(`{"os": "linux", "architecture": "amd64", "config": {}}`)
	return name, digest.FromBytes(config), config, nil
}

func main() {
	text, err := io.ReadAll(os.Stdin)
	check(err)
	source := llb.NewSourceMap(nil, "Dockerfile", "Dockerfile", text)
	source.Definition = &llb.Definition{}
	found, err := dockerfile2llb.DockerfileLint(context.Background(), text, dockerfile2llb.ConvertOpt{
		SourceMap:    source,
		MetaResolver: offline{},
	})
	check(err)
	if found.Error != nil {
		check(errors.New(found.Error.Message))
	}
	for _, warning := range found.Warnings {
		fmt.Fprintf(os.Stderr, "%s: %s\n", warning.RuleName, warning.Detail)
	}
	os.Exit(min(len(found.Warnings), 1))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
