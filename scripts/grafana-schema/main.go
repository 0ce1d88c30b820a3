// Reads a board of Grafana's from standard input by Grafana's own schema, strictly: what it does not know is an error.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	plugins.RegisterDefaultPlugins()
	var board dashboard.Dashboard
	text, err := io.ReadAll(os.Stdin)
	check(err)
	check(board.UnmarshalJSONStrict(text))
	check(board.Validate())
	fmt.Println(len(board.Panels), "panels")
}

func check(err error) {
	if err != nil && err.Error() != "" { // the schema's answer to what is right is a list without errors
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
