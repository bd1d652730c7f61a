"""great-expectations' Data Docs of the field statistics: pages to read, with run times in them."""

from pathlib import Path

import great_expectations as gx
from great_expectations.checkpoint import UpdateDataDocsAction

from pipeline.quality.checks import Suite, quiet_context


def build_data_docs(suites: list[Suite], folder: Path) -> Path:
    """Validate every suite and write its page below `folder`; the index page comes back.

    The pages carry the time of the run and load styles from the web, so they are built beside the
    stages and are no tracked output.
    """
    context = quiet_context()
    for site in list(context.get_site_names()):
        context.delete_data_docs_site(site)
    store = {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder.resolve())}
    index = {"class_name": "DefaultSiteIndexBuilder"}
    site = {"class_name": "SiteBuilder", "site_index_builder": index, "store_backend": store}
    context.add_data_docs_site("pages", site)
    source = context.data_sources.add_pandas("tables")
    for suite in suites:
        asset = source.add_dataframe_asset(suite.name)
        expected = gx.ExpectationSuite(suite.name, expectations=suite.expectations)
        definition = gx.ValidationDefinition(
            name=suite.name,
            data=asset.add_batch_definition_whole_dataframe("whole"),
            suite=context.suites.add(expected),
        )
        checkpoint = gx.Checkpoint(
            name=suite.name,
            validation_definitions=[context.validation_definitions.add(definition)],
            actions=[UpdateDataDocsAction(name="pages", site_names=["pages"])],
        )
        context.checkpoints.add(checkpoint).run({"dataframe": suite.frame})
    return folder / "index.html"
