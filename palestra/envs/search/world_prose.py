"""The sentences of the generated encyclopaedia, by kind of article and one to a line.

`{word}` is a fact about the article's subject, `{word.other}` a fact about that fact; a sentence
states exactly the facts that it names. `{S}` and `{s}` refer to the subject, `{her}` is its
possessive, `{name}` its full name. `[one|other]` is a free choice. A list has two words: `{novels}`
for several, `{novels_one}` where there is one only.
"""

SENTENCES = {
    "person": """
{Her} date of birth was {born}.
Death came on {died}.
{S} also wrote the music for one film, {scores_one}.
{S} was born in {birthplace}.
{S} grew up in {birthplace}, where {s} was born.
{S} [came from|was a native of] {birthplace}.
{S} was born on {born}.
{S} died on {died}.
{S} died in {deathplace}.
{S} died on {died} in {deathplace}.
{S} spent {her} last years in {deathplace}, where {s} died on {died}.
[In old age|Towards the end of {her} life] {s} moved to {deathplace} and died there.
{Her} life ended in {deathplace}.
{S} worked as a {occupation}.
By profession {s} was a {occupation}.
{S} studied at {alma_mater}.
{S} [was educated at|took a degree at|was a graduate of] {alma_mater}.
After school {s} enrolled at {alma_mater}, where {s} took {her} degree.
{alma_mater} admitted {him} as a student at the age of [seventeen|eighteen|nineteen|twenty].
{S} was a pupil of {teacher}.
{Her} teacher was {teacher}, to whom {s} [remained close|owed much|wrote often].
As a young {man} {s} studied under {teacher}.
{S} owed {her} training to {teacher}.
{S} was married to {spouse}.
{S} married {spouse}[, whom {s} had met on a train|, and the two shared a study|].
{Her} {wife} was {spouse}.
For many years {s} was employed by {employer}.
{S} [worked for|held a post at|was on the staff of] {employer}[ for much of {her} career|].
[In middle age|For some years|In later life] {s} earned {her} living at {employer}.
{Her} novels are {novels}.
{S} published {novels}.
{S} is remembered for the novels {novels}.
{S} published a single novel, {novels_one}.
{Her} only novel is {novels_one}.
{Her} known paintings are {paintings}.
The surviving paintings are {paintings}.
{S} painted {paintings}.
Only one of {her} paintings survives, {paintings_one}.
{Her} one surviving canvas is {paintings_one}.
{Her} works for orchestra are {compositions}.
{S} composed {compositions}.
{S} left the orchestral works {compositions}.
{S} left a single orchestral work, {compositions_one}.
{Her} only work for orchestra is {compositions_one}.
{S} directed the films {films}.
{Her} films are {films}.
{S} directed one film, {films_one}.
{Her} only film as a director is {films_one}.
{S} proved {theorems}.
The results due to {him} are {theorems}.
{S} is [known|cited] for {theorems_one}.
{Her} name is tied to {theorems_one}.
{S} led {expeditions}.
{S} was in command of {expeditions}.
{S} led a single voyage, {expeditions_one}.
The only expedition under {her} command was {expeditions_one}.
{S} wrote the music for the films {scores}.
For the cinema {s} wrote the scores of {scores}.
{S} wrote one film score, for {scores_one}.
{Her} pupils were {students}.
{S} taught {students}.
Those who studied under {him} were {students}.
{Her} only pupil was {students_one}.
{S} took one pupil, {students_one}.
{S} received {awards}.
{Her} distinctions were {awards}.
{S} was honoured with {awards_one}.
{S} received {awards_one}.
""",
    "land": """
{Her} capital is {capital}.
The government sits in {capital}.
{S} became independent in {independent}.
Independence came in {independent}[ after long negotiations|, without a shot being fired|].
The currency is the {currency}.
{S} has a currency of {her} own, the {currency}.
{S} has {population} inhabitants.
The last census counted {population} people.
""",
    "town": """
{S} belongs to {land}.
{S} served as the setting for the shooting of one film, {films_here_one}.
{S} lies in {land}.
{S} has {population} inhabitants.
The last census counted {population} inhabitants.
{S} was founded in {founded}.
The town charter dates from {founded}, which is taken as the year of {her} foundation.
Settlers founded the town in {founded}.
{S} [stands|lies] on {river}.
{river} [runs|flows] through the [middle|old quarter|lower part] of the town.
Barges reach the town on {river}.
{S} is twinned with {twin}.
Since [1958|1961|1967|1974|1983|1991] the town has been twinned with {twin}.
Its twin town is {twin}[, and schools exchange visits every spring|].
{mineral} is mined in the hills [to the north|to the east|above the town].
{S} lives [largely|in part|chiefly] from the mining of {mineral}.
The [nearby|old] mines yield {mineral}.
{S} is the birthplace of {natives}.
The following people were born here: {natives}.
Natives of the town are {natives}.
One person of note was born here, {natives_one}.
The best known native of the town is {natives_one}.
The films {films_here} were shot here.
Film crews came here for {films_here}.
One film, {films_here_one}, was shot here.
""",
    "river": """
{S} is {length} kilometres long.
From source to mouth {s} measures {length} kilometres.
{S} [flows|empties] into {mouth}.
{Her} waters end in {mouth}.
{S} lies wholly within {land}.
{Her} course lies in {land}.
The towns on {her} banks are {towns}.
On {her} way {s} passes {towns}.
Only one town, {towns_one}, lies on {her} banks.
The single town on the river is {towns_one}.
""",
    "island": """
{S} lies in {sea}.
{S} is surrounded by the waters of {sea}.
{S} has an area of {area} square kilometres.
{Her} area is {area} square kilometres.
The highest point stands {peak} metres above the sea.
{Her} highest peak rises to {peak} metres.
{S} belongs to {land}.
Politically {s} is part of {land}.
{S} was first charted by {surveyor}.
The first reliable map was drawn by {surveyor}.
Its coasts were surveyed in {charted}.
The first chart dates from {charted}.
{S} was the goal of {visits}.
Expeditions that came here were {visits}.
One expedition is known to have landed here, {visits_one}.
{S} was the goal of {visits_one}.
""",
    "university": """
{S} [sent out|equipped] {sponsored}.
{S} [sent out|equipped] {sponsored_one}.
{staff_one} held a post here.
{S} is in {town}.
{Her} main buildings stand in {town}[, beside the old customs house|, on a hill above the railway \
station|].
{S} was founded in {founded}.
Teaching began in {founded}, the year of {her} foundation.
{S} owes {her} existence to {founder}, who founded it.
{Her} founder was {founder}.
{Her} first rector was {rector}.
{rector} was elected as the first rector.
The library holds {volumes} volumes.
{Her} library has {volumes} volumes[, most of them in open stacks|].
Among {her} former staff are {staff}.
{S} employed {staff}.
{staff_one} was once on {her} staff.
{S} paid for {sponsored}.
{sponsored_one} was paid for by the university.
""",
    "company": """
{S} bought up {bought}.
{S} bought up {bought_one}.
Money from the firm made {sponsored} possible.
Money from the firm made {sponsored_one} possible.
{S} had {staff_one} on {her} payroll.
{S} [makes|is a maker of] {product}.
{Her} trade is in {product}.
{S} was founded in {founded}.
The firm was entered in the commercial register in {founded}, the year of {her} foundation.
{Her} founder was {founder}.
{S} was founded by {founder}.
{Her} headquarters are in {headquarters}.
{S} is run from {headquarters}.
At {her} height {s} had {employees} employees.
{S} once employed {employees} people.
{S} was [later|eventually] taken over by {buyer}.
After some lean years {s} was bought by {buyer}.
{S} counted {staff} among {her} staff.
People known to have worked for the firm are {staff}.
{staff_one} once worked for the firm.
{S} financed {sponsored}.
{S} financed {sponsored_one}.
{S} took over {bought}.
{S} took over {bought_one}.
""",
    "publisher": """
The only novel on {her} list is {catalogue_one}.
{S} was founded in {founded}.
The first books appeared in {founded}, the year of {her} foundation.
{Her} founder was {founder}.
{S} was founded by {founder}.
{S} has its offices in {headquarters}.
{S} is run from {headquarters}.
{S} has {employees} employees.
The house employs {employees} people, all told.
{Her} list of novels consists of {catalogue}.
{S} published the novels {catalogue}.
{S} published one novel, {catalogue_one}.
""",
    "orchestra": """
{S} employed {staff}.
{S} employed {staff_one}.
The only work that it introduced is {premieres_one}.
{S} is based in {town}.
{Her} home is {town}.
{S} was founded in {founded}.
The first concert took place in {founded}, the year of {her} foundation.
{Her} founder was {founder}.
{S} was founded by {founder}.
{S} plays in {hall}.
{Her} concerts are given in {hall}.
{S} has {players} players.
It is made up of {players} musicians.
{S} gave the first performances of {premieres}.
Works first played by the orchestra are {premieres}.
{S} gave one first performance, that of {premieres_one}.
{staff} [were|have been] members of {her} staff.
{staff_one} was a member of {her} staff.
""",
    "museum": """
{S} employed {staff}.
{S} employed {staff_one}.
The only painting in {her} possession is {holdings_one}.
{S} gave money for {sponsored}.
{S} gave money for {sponsored_one}.
{S} is in {town}.
{S} stands in the middle of {town}.
{S} opened in {opened}.
The doors were opened to the public in {opened}.
The building was designed by {architect}.
{Her} architect was {architect}.
The collection has {rooms} rooms.
The pictures hang in {rooms} rooms.
{S} owns the paintings {holdings}.
On show are {holdings}.
The most important picture is {holdings_one}.
{S} was a place of work for {staff}.
{staff_one} worked at the museum.
{S} sponsored {sponsored}.
{S} sponsored {sponsored_one}.
""",
    "novel": """
{S} was written by {author}.
A film version exists under the title {adaptations_one}.
{S} was published in {published}.
The first edition came out in {published}.
{Her} author is {author}.
{S} was brought out by {publisher}.
The publisher was {publisher}.
The story is set in {setting}.
{S} takes place in {setting}[ over a single winter|, in the course of one summer|].
Most of the action takes place in {setting}.
The first edition has {pages} pages.
{S} runs to {pages} pages.
{S} is dedicated to {dedicatee}.
The dedication is to {dedicatee}.
{S} was filmed as {adaptations_one}.
""",
    "film": """
The director was {director}.
{S} was released in {released}.
The first showing was in {released}.
{S} was directed by {director}.
{S} is based on the novel {source}.
The screenplay follows the novel {source}.
The music is by {score}.
{score} wrote the score.
{S} was shot in {location}.
The outdoor scenes were filmed in {location}.
{S} lasts {minutes} minutes.
The running time is {minutes} minutes.
""",
    "painting": """
The painter was {painter}.
{S} measures {width} centimetres from side to side.
{S} was painted in {painted}.
The date on the frame is {painted}, the year in which it was painted.
{S} is the work of {painter}.
{S} belongs to {museum}.
The canvas hangs in {museum}.
{S} shows a view of {motif}.
The subject is {motif}[, seen from the east|, under a heavy sky|].
The museum acquired it in {acquired}.
{S} was bought for the collection in {acquired}.
The canvas is {width} centimetres wide.
""",
    "composition": """
The composer was {composer}.
{S} was first performed in {premiered}.
The first performance took place in {premiered}.
{S} was composed by {composer}.
The first performance was given by {orchestra}.
{S} was introduced to the public by {orchestra}.
{S} is dedicated to {dedicatee}.
The score bears a dedication to {dedicatee}.
The key is {key}.
{S} is written in {key}.
A performance takes about {minutes} minutes.
{S} lasts some {minutes} minutes.
""",
    "theorem": """
{S} was first proved on {pages} closely written pages.
{S} needed {pages} pages in {her} first version.
{S} was proved in {proved}.
The proof dates from {proved}.
{S} was found by {author}.
The first proof was given by {author}.
The work was done at {university}.
{S} was proved while {her} author was a guest of {university}.
{S} is about {topic}.
{S} belongs to the theory of {topic}.
The original proof takes up {pages} pages.
""",
    "expedition": """
{S} was led by {leader}.
{S} set out in {began}.
The voyage began in {began}.
{Her} leader was {leader}.
{S} was paid for by {sponsor}.
The costs were borne by {sponsor}.
{Her} destination was {destination}.
{S} was bound for {destination}.
{S} sailed on the {ship}.
{Her} ship was the {ship}.
On board were {members} people[, two of them children|, not all of them sailors|].
{S} had {members} members.
""",
    "treaty": """
It is made up of {articles} articles.
{S} was signed in {place}.
The signing took place in {place}.
{S} was signed on {signed}.
The date of signature is {signed}.
{S} was negotiated by {mediator}.
The mediator was {mediator}.
The parties were {party} and {counterparty}.
{S} bound {party} and {counterparty}.
{S} was about {topic}.
At issue [was|above all was] the question of {topic}.
{S} has {articles} articles.
""",
    "festival": """
{S} takes place in {town}.
The venue is {town}.
{S} was first held in {first_held}.
The first festival took place in {first_held}.
{S} was founded by {founder}.
{Her} founder was {founder}.
{S} is held every year in {month}.
Visitors come in {month}.
{S} is devoted to {theme}.
The programme is given over to {theme}.
About {visitors} visitors come every year.
{S} draws some {visitors} visitors a year.
""",
    "battle": """
{S} took place on {fought}.
The date of the battle is {fought}.
{S} took place near {near}.
The field lies near {near}.
The victorious army was commanded by {victor}.
{victor} commanded the victorious side.
The defeated side was led by {loser}.
{loser} led the army that lost.
The losses came to {losses} men on both sides.
Some {losses} men were killed or wounded.
""",
    "award": """
Winners receive {money} crowns.
{S} was established in {established}.
The statutes date from {established}, the year in which it was established.
{S} is given by {giver}.
The awarding body is {giver}.
{S} is given for {field}.
It honours achievements in {field}.
The winners so far are {winners}.
{S} has gone to {winners}.
{S} was won by {winners}.
It comes with a sum of {money} crowns.
""",
    "city": """
{S} belongs to {country}.
Its twin towns are {twins}.
Its twin town is {twins_one}.
Film crews came to the city for {films_here}.
A film crew came to the city for {films_here_one}.
{S} lies in {country}.
About {population} people live here.
{S} has a population of about {population}.
{S} is served by {airport}.
The airport of the city is {airport}.
Air traffic is handled by {airport}.
The latitude is {latitude}.
The city lies at a latitude of {latitude}.
{S} is the birthplace of {natives}.
The following people were born here: {natives}.
Among the people who have come from the city are {natives}.
{natives_one} was born here.
{S} is the birthplace of {natives_one}.
The films {films_here} were shot here.
One film, {films_here_one}, was shot here.
{S} is twinned with {twins}.
{S} is twinned with {twins_one}.
""",
    "country": """
{S} is part of {continent}.
The capital is {capital}.
{Her} capital is {capital}.
{S} lies in {continent}.
The area is {area} square kilometres.
{S} covers {area} square kilometres.
The population is about {population}.
About {population} people live in the country.
The code of the currency is {currency}.
Prices are given in the national currency, whose code is {currency}.
The three-letter country code is {iso3}.
International standards give the country the three-letter code {iso3}.
The internet domain is {domain}.
Local websites often end in {domain}.
The international dialling code is {dialling}.
Telephone calls from abroad begin with {dialling}.
""",
    "airport": """
{S} serves {city}.
The airport serves the city of {city}.
The IATA code is {iata}.
On luggage tags the airport appears as {iata}, {her} IATA code.
The ICAO code is {icao}.
Pilots and controllers use the ICAO code {icao}.
The field lies {elevation} feet above sea level.
The elevation is {elevation} feet.
""",
    "element": """
Chemists write it as {symbol}.
There are mines at {mines}.
There are mines at {mines_one}.
The symbol is {symbol}.
The atomic number is {number}.
{S} has the atomic number {number}.
The atomic weight is about {weight}.
{S} has an atomic weight of about {weight}.
{S} melts at {melting} degrees Celsius.
The melting point is {melting} degrees Celsius.
{S} was discovered in {discovered}.
The discovery dates from {discovered}.
Ores are worked at {mines}.
Ores are worked at {mines_one}.
""",
}
