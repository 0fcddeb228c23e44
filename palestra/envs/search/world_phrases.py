"""The wording of questions, by kind of entity and relation; `|` separates phrasings, `{x}` is a
noun phrase for the entity.

A phrasing that ends in `{x}` can take a long phrase without getting tangled: every entry has one.
"""

NAMED = {
    "person": "{name}", "town": "{name}|the town of {name}", "land": "{name}",
    "river": "the river {name}",
    "island": "the island of {name}", "university": "the {name}",
    "company": "{name}|the firm {name}", "publisher": "{name}|the publisher {name}",
    "orchestra": "the {name}",
    "museum": "the {name}", "novel": "the novel {name}", "film": "the film {name}",
    "painting": "the painting {name}",
    "composition": "the composition {name}|the orchestral work {name}", "theorem": "the {name}",
    "expedition": "the {name}",
    "treaty": "the {name}",
    "festival": "the {name}", "battle": "the {name}", "award": "the {name}",
    "city": "{name}|the city of {name}", "country": "{name}",
    "airport": "{name}", "element": "{name}",
}  # fmt: skip
PLURALS = {
    "town": "the towns", "river": "the rivers", "island": "the islands", "novel": "the novels",
    "film": "the films",
    "painting": "the paintings", "composition": "the compositions",
}  # fmt: skip

REFS = {
    ("person", "birthplace"): "the birthplace of {x}|the place where {x} was born",
    ("person", "deathplace"): "the place of death of {x}|the place where {x} died",
    ("person", "alma_mater"): "the university attended by {x}|the university at which {x} studied",
    (
        "person",
        "teacher",
    ): "the teacher of {x}|the person who taught {x}|the person under whom {x} studied",
    ("person", "spouse"): "the spouse of {x}|the person married to {x}|the person whom {x} married",
    ("person", "employer"): "the employer of {x}",
    ("land", "capital"): "the capital of {x}",
    ("town", "land"): "the country that contains {x}|the country in which {x} lies",
    ("town", "river"): "the river that flows through {x}|the river on which {x} lies",
    (
        "town",
        "twin",
    ): "the twin town of {x}|the city twinned with {x}|the city with which {x} is twinned",
    ("town", "mineral"): "the metal mined at {x}",
    ("island", "surveyor"): "the person who first charted {x}",
    ("university", "town"): "the seat of {x}|the place where {x} is located",
    ("university", "founder"): "the founder of {x}",
    ("university", "rector"): "the first rector of {x}",
    ("company", "founder"): "the founder of {x}",
    ("company", "headquarters"): "the seat of {x}|the place where {x} has its headquarters",
    ("company", "buyer"): "the firm that took over {x}",
    ("publisher", "founder"): "the founder of {x}",
    ("publisher", "headquarters"): "the seat of {x}",
    ("orchestra", "town"): "the home of {x}|the place where {x} is based",
    ("orchestra", "founder"): "the founder of {x}",
    ("museum", "town"): "the home of {x}|the place where {x} stands",
    ("museum", "architect"): "the architect of {x}",
    ("novel", "author"): "the author of {x}|the writer of {x}|the person who wrote {x}",
    ("novel", "publisher"): "the publisher of {x}",
    ("novel", "setting"): "the setting of {x}|the place in which {x} is set",
    ("novel", "dedicatee"): "the dedicatee of {x}|the person to whom {x} is dedicated",
    ("film", "director"): "the director of {x}|the person who directed {x}",
    ("film", "source"): "the novel behind {x}|the novel on which {x} is based",
    ("film", "score"): "the composer of the music for {x}",
    ("film", "location"): "the filming location of {x}|the place where {x} was shot",
    ("painting", "painter"): "the painter of {x}|the artist who painted {x}",
    ("painting", "museum"): "the museum that owns {x}",
    ("painting", "motif"): "the place shown in {x}",
    ("composition", "composer"): "the composer of {x}|the person who composed {x}",
    ("composition", "orchestra"): "the orchestra that first performed {x}",
    ("composition", "dedicatee"): "the dedicatee of {x}|the person to whom {x} is dedicated",
    ("theorem", "author"): "the mathematician who proved {x}",
    (
        "theorem",
        "university",
    ): "the university that was the scene of the proof of {x}|the university where {x} was proved",
    ("expedition", "leader"): "the leader of {x}|the explorer who led {x}",
    ("expedition", "sponsor"): "the sponsor of {x}",
    ("expedition", "destination"): "the destination of {x}|the island for which {x} was bound",
    ("treaty", "place"): "the place of signature of {x}|the place where {x} was signed",
    ("treaty", "mediator"): "the mediator of {x}",
    ("festival", "town"): "the venue of {x}|the place where {x} is held",
    ("festival", "founder"): "the founder of {x}",
    ("battle", "near"): "the town near the field of {x}|the town near which {x} was fought",
    ("battle", "victor"): "the victorious commander in {x}",
    ("battle", "loser"): "the defeated commander in {x}",
    ("award", "giver"): "the body that gives {x}",
    ("award", "winner"): "the {year} winner of {x}|the person who won {x} in {year}",
    ("city", "country"): "the country that contains {x}|the country in which {x} lies",
    ("city", "airport"): "the airport of {x}",
}

ASKS = {
    (
        "person",
        "birthplace",
    ): "What was the birthplace of {x}?|Where was {x} born?|In which town or city was {x} born?",
    (
        "person",
        "deathplace",
    ): "What was the place of death of {x}?|Where did {x} die?|In which town or city did {x} die?",
    (
        "person",
        "alma_mater",
    ): "Which university was attended by {x}?|At which university did {x} study?|Which "
    "university did {x} attend?",
    ("person", "teacher"): "Who taught {x}?|Who was the teacher of {x}?|Under whom did {x} study?",
    (
        "person",
        "spouse",
    ): "Who was the spouse of {x}?|Who was married to {x}?|To whom was {x} married?",
    (
        "person",
        "employer",
    ): "Which institution or firm employed {x}?|By which institution or firm was {x} "
    "employed?|For whom did {x} work?",
    ("land", "currency"): "What is the currency of {x}?|What is the currency of {x} called?",
    ("town", "river"): "Which river flows through {x}?|On which river does {x} lie?",
    (
        "town",
        "twin",
    ): "What is the twin town of {x}?|Which city is twinned with {x}?|With which city is {x} "
    "twinned?",
    ("river", "mouth"): "What is at the mouth of {x}?|Into what does {x} flow?|Where does {x} end?",
    ("island", "surveyor"): "Who first charted {x}?|Who drew the first reliable map of {x}?",
    ("island", "sea"): "Which sea surrounds {x}?|In which sea does {x} lie?",
    ("university", "founder"): "Who founded {x}?|Who was the founder of {x}?",
    ("university", "rector"): "Who was the first rector of {x}?",
    (
        "university",
        "town",
    ): "Which town or city is the seat of {x}?|Where is {x} located?|In which town or city is {x}?",
    ("company", "founder"): "Who founded {x}?|Who was the founder of {x}?",
    (
        "company",
        "headquarters",
    ): "Which town or city is the seat of {x}?|Where does {x} have its headquarters?",
    ("company", "buyer"): "Which firm took over {x}?|Which firm bought {x}?",
    ("publisher", "founder"): "Who founded {x}?|Who was the founder of {x}?",
    (
        "publisher",
        "headquarters",
    ): "Which town or city is the seat of {x}?|In which town or city does {x} have its offices?",
    ("orchestra", "founder"): "Who founded {x}?|Who was the founder of {x}?",
    (
        "orchestra",
        "hall",
    ): "What is the name of the concert hall of {x}?|In which hall does {x} play?",
    (
        "orchestra",
        "town",
    ): "Which town or city is the home of {x}?|In which town or city is {x} based?",
    ("museum", "architect"): "Who was the architect of {x}?|Who designed the building of {x}?",
    ("museum", "town"): "Which town or city is the home of {x}?|In which town or city is {x}?",
    ("novel", "author"): "Who wrote {x}?|Who is the author of {x}?",
    ("novel", "publisher"): "Who published {x}?|Which house published {x}?",
    (
        "novel",
        "setting",
    ): "What is the setting of {x}?|Where is {x} set?|In which place does the story of {x} "
    "take place?",
    ("novel", "dedicatee"): "Who is the dedicatee of {x}?|To whom is {x} dedicated?",
    ("film", "director"): "Who directed {x}?|Who was the director of {x}?",
    ("film", "source"): "Which novel was the basis of {x}?|On which novel is {x} based?",
    ("film", "score"): "Who wrote the music for {x}?|Who composed the score of {x}?",
    ("film", "location"): "What was the filming location of {x}?|Where was {x} shot?",
    ("painting", "painter"): "Who painted {x}?|Who is the painter of {x}?",
    ("painting", "museum"): "Which museum owns {x}?|In which museum does {x} hang?",
    ("painting", "motif"): "Which place can be seen in {x}?|Which place does {x} show?",
    ("composition", "composer"): "Who composed {x}?|Who is the composer of {x}?",
    ("composition", "orchestra"): "Which orchestra gave the first performance of {x}?",
    ("composition", "dedicatee"): "Who is the dedicatee of {x}?|To whom is {x} dedicated?",
    ("theorem", "author"): "Who proved {x}?|Who found the first proof of {x}?|To whom is {x} due?",
    (
        "theorem",
        "university",
    ): "Which university was the scene of the proof of {x}?|At which university was {x} proved?",
    ("expedition", "leader"): "Who led {x}?|Who was the leader of {x}?",
    ("expedition", "sponsor"): "Who paid for {x}?|By whom was {x} financed?",
    (
        "expedition",
        "destination",
    ): "Which island was the destination of {x}?|For which island was {x} bound?",
    (
        "expedition",
        "ship",
    ): "What was the name of the ship of {x}?|What was the ship of {x} called?|On which ship "
    "did {x} sail?",
    ("treaty", "place"): "What was the place of signature of {x}?|Where was {x} signed?",
    ("treaty", "mediator"): "Who negotiated {x}?|Who was the mediator of {x}?",
    (
        "festival",
        "town",
    ): "Which town or city is the venue of {x}?|In which town or city is {x} held?",
    ("festival", "founder"): "Who founded {x}?|Who was the founder of {x}?",
    ("battle", "near"): "Which town lies near the field of {x}?|Near which town was {x} fought?",
    ("battle", "victor"): "Who commanded the victorious army in {x}?|Who was the victor of {x}?",
    ("battle", "loser"): "Who led the defeated side in {x}?",
    ("award", "giver"): "Who gives {x}?|By which body is {x} given?",
    ("city", "country"): "Which country contains {x}?|In which country does {x} lie?",
    ("city", "airport"): "Which airport serves {x}?",
    ("country", "capital"): "What is the capital of {x}?",
    ("country", "currency"): "What is the currency code of {x}?",
    ("country", "iso3"): "What is the three-letter code of {x}?",
    ("country", "dialling"): "What is the international dialling code of {x}?",
    ("country", "domain"): "What is the internet domain of {x}?",
    ("airport", "iata"): "What is the IATA code of {x}?",
    ("airport", "icao"): "What is the ICAO code of {x}?",
    ("element", "symbol"): "What is the chemical symbol of {x}?",
    ("element", "number"): "What is the atomic number of {x}?",
}

DATES = {
    (
        "person",
        "born",
    ): "What was the date of birth of {x}?|On what date was {x} born?|When was {x} born?",
    (
        "person",
        "died",
    ): "What was the date of death of {x}?|On what date did {x} die?|When did {x} die?",
    ("treaty", "signed"): "What was the date of the signing of {x}?|On what date was {x} signed?",
    (
        "battle",
        "fought",
    ): "What was the date of {x}?|On what date was {x} fought?|When was {x} fought?",
}

EVENTS = {
    ("person", "born"): "the birth of {x}|{x} was born",
    ("person", "died"): "the death of {x}|{x} died",
    ("land", "independent"): "the independence of {x}|{x} became independent",
    ("island", "charted"): "the first survey of {x}|{x} was first charted",
    ("town", "founded"): "the foundation of {x}|{x} was founded",
    ("university", "founded"): "the foundation of {x}|{x} was founded",
    ("company", "founded"): "the foundation of {x}|{x} was founded",
    ("publisher", "founded"): "the foundation of {x}|{x} was founded",
    ("orchestra", "founded"): "the foundation of {x}|{x} was founded",
    ("museum", "opened"): "the opening of {x}|{x} opened",
    ("novel", "published"): "the publication of {x}|{x} was published",
    ("film", "released"): "the release of {x}|{x} was released",
    ("painting", "painted"): "the completion of {x}|{x} was painted",
    ("composition", "premiered"): "the first performance of {x}|{x} was first performed",
    ("theorem", "proved"): "the first proof of {x}|{x} was proved",
    ("expedition", "began"): "the departure of {x}|{x} set out",
    ("treaty", "signed"): "the signing of {x}|{x} was signed",
    ("festival", "first_held"): "the first holding of {x}|{x} was first held",
    ("battle", "fought"): "{x}|{x} was fought",
    ("award", "established"): "the establishment of {x}|{x} was established",
}
"""Events of a year, as a noun and as a clause: asked about, or used to identify the year."""

NUMBERS = {
    (
        "novel",
        "pages",
    ): "How many pages are there in the first edition of {x}?|How many pages does the first "
    "edition of {x} have?",
    (
        "film",
        "minutes",
    ): "What is the running time in minutes of {x}?|How many minutes does {x} last?",
    (
        "composition",
        "minutes",
    ): "About how many minutes does it take to play {x}?|About how many minutes does {x} last?",
    ("expedition", "members"): "How many people took part in {x}?|How many members did {x} have?",
    (
        "company",
        "employees",
    ): "What was the largest number of people employed by {x}?|How many people did {x} "
    "employ at its height?",
    (
        "publisher",
        "employees",
    ): "How many people are employed by {x}?|How many employees does {x} have?",
    ("museum", "rooms"): "How many rooms are there in {x}?|How many rooms does {x} have?",
    ("orchestra", "players"): "How many players are there in {x}?|How many players does {x} have?",
    (
        "university",
        "volumes",
    ): "How many volumes are there in the library of {x}?|How many volumes does the library "
    "of {x} hold?",
    ("town", "population"): "How many people live in {x}?|How many inhabitants does {x} have?",
    (
        "festival",
        "visitors",
    ): "About how many visitors a year come to {x}?|About how many visitors does {x} draw "
    "every year?",
    ("battle", "losses"): "How many men were killed or wounded in {x}?",
    (
        "river",
        "length",
    ): "What is the length in kilometres of {x}?|How many kilometres long is {x}?",
    (
        "island",
        "area",
    ): "What is the area in square kilometres of {x}?|How many square kilometres does {x} cover?",
    ("island", "peak"): "What is the height in metres of the highest point of {x}?",
    ("treaty", "articles"): "How many articles are there in {x}?|How many articles does {x} have?",
    ("theorem", "pages"): "How many pages were needed for the original proof of {x}?",
    (
        "painting",
        "width",
    ): "What is the width in centimetres of {x}?|How many centimetres wide is {x}?",
}

SUMS = {
    ("novel", "pages"): "How many pages are there in all in the first editions of {x} and {y}?",
    ("film", "minutes"): "What is the combined running time in minutes of {x} and {y}?",
    (
        "composition",
        "minutes",
    ): "How many minutes does it take to play, one after the other, {x} and {y}?",
    ("expedition", "members"): "How many people in all took part in {x} and {y}?",
    ("museum", "rooms"): "How many rooms are there in all in {x} and {y}?",
    ("orchestra", "players"): "How many players are there in all in {x} and {y}?",
    ("publisher", "employees"): "How many people in all are employed by {x} and {y}?",
    ("island", "area"): "What is the combined area in square kilometres of {x} and {y}?",
    ("river", "length"): "What is the combined length in kilometres of {x} and {y}?",
    ("treaty", "articles"): "How many articles are there in all in {x} and {y}?",
}

COUNTS = {
    (
        "person",
        "novels",
    ): "How many novels were published by {x}?|How many novels did {x} publish?|How many "
    "novels are there by {x}?",
    (
        "person",
        "paintings",
    ): "How many paintings are known by {x}?|How many paintings by {x} are known?",
    (
        "person",
        "compositions",
    ): "How many works for orchestra were composed by {x}?|How many works for orchestra did "
    "{x} compose?",
    ("person", "films"): "How many films were directed by {x}?|How many films did {x} direct?",
    (
        "person",
        "expeditions",
    ): "How many expeditions were led by {x}?|How many expeditions did {x} lead?",
    ("person", "students"): "How many pupils studied under {x}?|How many pupils did {x} have?",
    (
        "person",
        "scores",
    ): "How many films have music by {x}?|For how many films did {x} write the music?",
    ("award", "winners"): "How many people have won {x}?",
    ("river", "towns"): "How many towns lie on {x}?|How many towns does {x} pass?",
    (
        "publisher",
        "catalogue",
    ): "How many novels were published by {x}?|How many novels did {x} publish?",
    ("museum", "holdings"): "How many paintings belong to {x}?|How many paintings does {x} own?",
    (
        "orchestra",
        "premieres",
    ): "How many works were first performed by {x}?|Of how many works did {x} give the first "
    "performance?",
    ("island", "visits"): "How many expeditions were bound for {x}?",
    ("town", "natives"): "How many people of note were born in {x}?",
}

COUNTS_UNTIL = {
    (
        "person",
        "novels",
    ): "By the end of {year}, how many novels had been published by {x}?|How many novels had "
    "{x} published by the end of {year}?",
    ("person", "paintings"): "How many paintings up to the end of {year} are known by {x}?",
    (
        "person",
        "films",
    ): "By the end of {year}, how many films had been directed by {x}?|How many films had "
    "{x} directed by the end of {year}?",
    (
        "person",
        "compositions",
    ): "By the end of {year}, how many orchestral works had been brought to performance by {x}?",
    (
        "award",
        "winners",
    ): "By the end of {year}, how many people had won {x}?|How many people had won {x} by "
    "the end of {year}?",
    ("publisher", "catalogue"): "By the end of {year}, how many novels had been published by {x}?",
    (
        "orchestra",
        "premieres",
    ): "By the end of {year}, how many new works had been introduced by {x}?",
}

COUNTS_BOTH = {
    ("person", "novels"): "How many novels were published in all by {x} and {y}?",
    ("person", "paintings"): "How many paintings are known in all by {x} and {y}?",
    ("person", "compositions"): "How many works for orchestra were composed in all by {x} and {y}?",
    ("person", "films"): "How many films were directed in all by {x} and {y}?",
    ("award", "winners"): "How many people in all have won {x} or {y}?",
    ("publisher", "catalogue"): "How many novels were published in all by {x} and {y}?",
    ("museum", "holdings"): "How many paintings belong in all to {x} and {y}?",
    ("orchestra", "premieres"): "How many works were first performed in all by {x} and {y}?",
}

PREDICATES = {
    "natives": "was born in {x}|came from {x}",
    "winners": "won {x}|received {x}",
    "students": "studied under {x}|was a pupil of {x}",
    "staff": "worked for {x}|was employed by {x}",
    "novels": "was written by {x}",
    "catalogue": "was published by {x}",
    "paintings": "was painted by {x}",
    "holdings": "belongs to {x}|hangs in {x}",
    "compositions": "was composed by {x}",
    "premieres": "was first performed by {x}",
    "films": "was directed by {x}",
    "scores": "has music by {x}",
    "films_here": "was shot in {x}",
    "expeditions": "was led by {x}",
    "sponsored": "was paid for by {x}",
    "visits": "was bound for {x}",
    "towns": "lies on {x}",
    "twins": "is twinned with {x}",
    "mines": "has mines of {x}",
    "awards": "was won by {x}",
}
"""What holds for the members of a list: `{x}` is the entity in whose article the list is."""

SUPERLATIVES = {
    ("person", "born"): "elder eldest younger youngest",
    ("town", "founded"): "older oldest newer newest",
    ("town", "population"): "smaller smallest larger largest",
    ("river", "length"): "shorter shortest longer longest",
    ("island", "area"): "smaller smallest larger largest",
    ("university", "founded"): "older oldest newer newest",
    ("publisher", "founded"): "older oldest newer newest",
    ("company", "founded"): "older oldest newer newest",
    ("orchestra", "founded"): "older oldest newer newest",
    ("orchestra", "players"): "smaller smallest larger largest",
    ("museum", "opened"): "older oldest newer newest",
    ("novel", "published"): "earlier earliest later latest",
    ("novel", "pages"): "shorter shortest longer longest",
    ("film", "released"): "earlier earliest later latest",
    ("film", "minutes"): "shorter shortest longer longest",
    ("painting", "painted"): "earlier earliest later latest",
    ("painting", "width"): "narrower narrowest wider widest",
    ("composition", "premiered"): "earlier earliest later latest",
    ("composition", "minutes"): "shorter shortest longer longest",
    ("theorem", "proved"): "earlier earliest later latest",
    ("expedition", "began"): "earlier earliest later latest",
    ("expedition", "members"): "smaller smallest larger largest",
    ("treaty", "signed"): "earlier earliest later latest",
    ("festival", "first_held"): "older oldest newer newest",
    ("battle", "fought"): "earlier earliest later latest",
    ("award", "established"): "older oldest newer newest",
}
"""For the minimum of two and of more, then for the maximum."""

FIRSTS = {
    ("person", "novels"): "the first novel by {x}|the last novel by {x}",
    ("person", "paintings"): "the earliest known painting by {x}|the last known painting by {x}",
    ("person", "compositions"): "the first orchestral work of {x}|the last orchestral work of {x}",
    ("person", "films"): "the first film directed by {x}|the last film directed by {x}",
    ("person", "expeditions"): "the first expedition led by {x}|the last expedition led by {x}",
    ("award", "winners"): "the first winner of {x}|the most recent winner of {x}",
    (
        "publisher",
        "catalogue",
    ): "the earliest novel published by {x}|the most recent novel published by {x}",
    (
        "orchestra",
        "premieres",
    ): "the first work to be introduced by {x}|the last work to be introduced by {x}",
    (
        "museum",
        "holdings",
    ): "the oldest painting owned by {x}|the most recent painting owned by {x}",
}
"""The first and the last of a list by year."""

IN_YEAR = {
    (
        "person",
        "novels",
    ): "Which novel was published in {year} by {x}?|Which novel did {x} publish in {year}?",
    (
        "person",
        "paintings",
    ): "Which painting was made in {year} by {x}?|Which painting did {x} make in {year}?",
    (
        "person",
        "compositions",
    ): "Which work, first performed in {year}, is by {x}?|Which work by {x} was first "
    "performed in {year}?",
    (
        "person",
        "films",
    ): "Which film of {year} was directed by {x}?|Which film by {x} was released in {year}?",
    (
        "person",
        "expeditions",
    ): "Which expedition set out in {year} under {x}?|Which expedition led by {x} set out in "
    "{year}?",
    (
        "award",
        "winners",
    ): "Who was the {year} winner of {x}?|Who won {x} in {year}?|To whom did {x} go in {year}?",
}

SEEK = {
    "birthplace": "born", "deathplace": "died", "alma_mater": "studied university",
    "spouse": "married", "employer": "employed",
    "headquarters": "headquarters", "motif": "view", "near": "fought near",
    "first_held": "first held", "iso3": "country code",
    "holdings": "paintings", "catalogue": "novels published", "premieres": "first performances",
    "films_here": "films shot",
    "visits": "expeditions",
    "scores": "film music", "twins": "twinned", "mines": "mines", "staff": "staff",
    "awards": "prizes received",
    "sponsored": "expeditions financed",
    "source": "based on novel", "acquired": "bought for the collection", "natives": "birthplace of",
}  # fmt: skip
"""The words that the expert adds to a name to search for a fact, if not the relation's own name."""
